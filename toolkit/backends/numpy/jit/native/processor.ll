; Libraries for other architectures have only one target processor.

define internal i64 @processor() #0 {
  ret i64 0
}

attributes #0 = { nounwind }
