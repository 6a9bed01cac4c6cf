; The reduction of Payne and Hanek: the nearest multiple of pi/2 and the rest. Only the
; relevant bits of 2/pi are multiplied. Higher bits give whole turns. Seven words leave
; an error of 2**-138 of a quarter turn, and no number is nearer to a multiple of it
; than 2**-62.

@large_angle.words = private constant [COUNT x i32] [ WORDS ], align 4

define internal { double, i64 } @large_angle(double %x) #0 {
entry:
  %bits = bitcast double %x to i64
  %biased.long = lshr i64 %bits, 52
  %biased = and i64 %biased.long, 2047
  %is.number = icmp ult i64 %biased, 2047
  br i1 %is.number, label %number, label %not.a.number
not.a.number:
  %nan = fsub double %x, %x
  %nan.result = insertvalue { double, i64 } zeroinitializer, double %nan, 0
  ret { double, i64 } %nan.result
number:
  ; |x| is the integer 2**32 * above + below, times 2**exponent.
  %fraction = and i64 %bits, 4503599627370495
  %whole = or i64 %fraction, 4503599627370496
  %above = lshr i64 %whole, 32
  %below = and i64 %whole, 4294967295
  ; The table starts with 64 zeros, so exponents start at -62.
  %place = sub i64 %biased, 1013
  %first = lshr i64 %place, 5
  %shift = and i64 %place, 31
  %lowest = add i64 %first, 6
  br label %next
next:
  ; From the lowest word of the product up; the last five words are kept.
  %k = phi i64 [ 0, %number ], [ %k.next, %next ]
  %right = phi i64 [ 0, %number ], [ %word, %next ]
  %carry.below = phi i64 [ 0, %number ], [ %carry.below.next, %next ]
  %carry.above = phi i64 [ 0, %number ], [ %carry.above.next, %next ]
  %p.1 = phi i64 [ 0, %number ], [ %p, %next ]
  %p.2 = phi i64 [ 0, %number ], [ %p.1, %next ]
  %p.3 = phi i64 [ 0, %number ], [ %p.2, %next ]
  %p.4 = phi i64 [ 0, %number ], [ %p.3, %next ]
  %at.number = sub i64 %lowest, %k
  %at = getelementptr i32, ptr @large_angle.words, i64 %at.number
  %word.short = load i32, ptr %at
  %word = zext i32 %word.short to i64
  %by.below = mul i64 %below, %word
  %sum.below = add i64 %by.below, %carry.below
  %carry.below.next = lshr i64 %sum.below, 32
  %kept = and i64 %sum.below, 4294967295
  %by.above = mul i64 %above, %right
  %sum = add i64 %by.above, %kept
  %sum.above = add i64 %sum, %carry.above
  %carry.above.next = lshr i64 %sum.above, 32
  %p = and i64 %sum.above, 4294967295
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, 7
  br i1 %more, label %next, label %quarters
quarters:
  ; Two bits of quarters and 126 fraction bits, then rounded to the nearest quarter.
  %high.left = shl i64 %p, 32
  %high.word = or i64 %high.left, %p.1
  %low.left = shl i64 %p.2, 32
  %low.word = or i64 %low.left, %p.3
  %rest.left = shl i64 %p.4, 32
  %high = call i64 @llvm.fshl.i64(i64 %high.word, i64 %low.word, i64 %shift)
  %low = call i64 @llvm.fshl.i64(i64 %low.word, i64 %rest.left, i64 %shift)
  %rounded = add i64 %high, 2305843009213693952
  %quarter = lshr i64 %rounded, 62
  %left.high = call i64 @llvm.fshl.i64(i64 %high, i64 %low, i64 2)
  %left.low = shl i64 %low, 2
  ; The rest as a sign, 64 bits with a leading 1, and an exponent.
  %sign = ashr i64 %left.high, 63
  %flipped.high = xor i64 %left.high, %sign
  %flipped.low = xor i64 %left.low, %sign
  %zeros = call i64 @llvm.ctlz.i64(i64 %flipped.high, i1 false)
  %moved = call i64 @llvm.fshl.i64(i64 %flipped.high, i64 %flipped.low, i64 %zeros)
  %first.half = lshr i64 %moved, 32
  %first.short = trunc i64 %first.half to i32
  %second.short = trunc i64 %moved to i32
  %first.double = uitofp i32 %first.short to double
  %second.double = uitofp i32 %second.short to double
  ; Times pi/2, whose first 17 bits have exact products with 32 bits.
  %second.scaled = fmul double %second.double, 0x3DF0000000000000
  %main = fmul double %first.double, 0x3FF921F000000000
  %small.first = fmul double %first.double, 0x3EE6A8885A308D31
  %small.second = fmul double %second.scaled, 0x3FF921FB54442D18
  %small = fadd double %small.first, %small.second
  %size = fadd double %main, %small
  %exponent = sub i64 991, %zeros
  %scale.bits = shl i64 %exponent, 52
  %scale = bitcast i64 %scale.bits to double
  %scaled = fmul double %size, %scale
  ; The sign of the rest is the product of both signs; the quarter takes the sign of x.
  %minus = ashr i64 %bits, 63
  %either = xor i64 %minus, %sign
  %sign.bit = and i64 %either, -9223372036854775808
  %scaled.bits = bitcast double %scaled to i64
  %signed.bits = xor i64 %scaled.bits, %sign.bit
  %rest = bitcast i64 %signed.bits to double
  %quarter.flipped = xor i64 %quarter, %minus
  %quarter.signed = sub i64 %quarter.flipped, %minus
  %partial = insertvalue { double, i64 } poison, double %rest, 0
  %result = insertvalue { double, i64 } %partial, i64 %quarter.signed, 1
  ret { double, i64 } %result
}
